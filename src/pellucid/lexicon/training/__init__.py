"""How a lexicon model is trained: rows of text pairs, contrastive loss, distillation from a teacher."""

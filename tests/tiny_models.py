"""Transformers of two layers and 32 dimensions with random weights, and tokenizers of a few dozen tokens."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = "a man is riding the horse on beach rapid quickly swift car cars vehicle doctor gave sick boy medicine".split()
CORPUS = [" ".join(WORDS), "Query query instruct <query> text: . , !"] * 10

_KINDS = {
    "mistral": {"num_key_value_heads": 2, "sliding_window": 4},
    "llama": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 8},
    "gpt_neox": {},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "gpt2": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "phi": {},
    "bert": {},
    "roberta": {},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "mpnet": {},
    "modernbert": {},
    "mamba": {},
    "albert": {"embedding_size": 16},
    "t5": {},
    "qwen3_5_text": {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"],
    },
}
ENCODERS = ("bert", "roberta", "distilbert", "mpnet", "modernbert")


def tiny_model(kind, vocabulary, *, headless=False, seed=0, **changes):
    """Return a model with random weights large enough that its states depend on all tokens."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(
        kind,
        **{
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "vocab_size": vocabulary,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "initializer_range": 0.2,
            **_KINDS[kind],
            **changes,
        },
    )
    torch.manual_seed(seed)
    loader = transformers.AutoModelForMaskedLM if kind in ENCODERS else transformers.AutoModelForCausalLM
    return (transformers.AutoModel if headless else loader).from_config(config).eval()


def _wrapped(tokenizer, **special):
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def sentence_piece():
    """Return a tokenizer like Mistral's: a mark before each word, a start token, an end token that is not added."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Metaspace()
    letters = [chr(c) for c in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=220, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=["▁", *letters], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _wrapped(tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def byte_level():
    """Return a tokenizer like GPT-2's: spaces belong to the word behind them, one special token, never added."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return _wrapped(tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def word_piece():
    """Return a tokenizer like BERT's: lower case, `##` inside words, [CLS] and [SEP] around the text."""
    pieces = [*WORDS, "medic", "##ine", "##s", "##ly", ".", ",", "!", "[", "]", ":", "query", "<", ">"]
    letters = [mark + chr(c) for c in range(97, 123) for mark in ("", "##")]
    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *dict.fromkeys([*pieces, *letters])]
    names.remove("medicine")
    tokenizer = piece_tokenizer(names, lowercase=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return _wrapped(
        tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", mask_token="[MASK]"
    )


def piece_tokenizer(pieces, *, lowercase=None, **settings):
    """Return BERT's tokenizer of some pieces, without special tokens; with its normaliser if `lowercase` is given."""
    names = {piece: n for n, piece in enumerate(dict.fromkeys(pieces if "[UNK]" in pieces else ["[UNK]", *pieces]))}
    tokenizer = Tokenizer(models.WordPiece(names, unk_token="[UNK]", **settings))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if lowercase is not None:
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    return tokenizer


def save_word_pieces(folder, pieces):
    """Write a tokenizer of BERT's kind that knows some pieces; return how many tokens it has."""
    from transformers import BertTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(pieces)]
    fast = piece_tokenizer(names, lowercase=True)
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    BertTokenizerFast(tokenizer_object=fast, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    return len(names)


def tiny_teacher(folder, pieces, dimension, seed=0, length=12):
    """Return a sentence transformer with random weights: a BERT of two layers, mean-pooled, that knows some pieces."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    size = save_word_pieces(folder, pieces)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=size, hidden_size=dimension, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(folder)
    words = Transformer(str(folder))
    words.max_seq_length = length
    return SentenceTransformer(modules=[words, Pooling(dimension, include_prompt=False)], device="cpu")


def random_adapter(folder, base, seed=7):
    """Write an adapter of rank 4 on all linear layers, as the authors' training does; return its folder."""
    import pytest
    import torch
    import transformers

    from pellucid.process import ignored_warnings

    peft = pytest.importorskip("peft")
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=names, task_type="CAUSAL_LM")
    with ignored_warnings(FutureWarning):
        adapted = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), config)
    torch.manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    adapted.save_pretrained(folder)
    return folder


def backbone_of(kind, attention="bidirectional", *, tokenizer=None, headless=False, **changes):
    """Return a tiny model and its tokenizer as a backbone; a decoder knows the marks of instructions."""
    from pellucid.transformer.backbone import prepare

    tokenizer = tokenizer or (word_piece() if kind == "bert" else sentence_piece())
    if kind != "bert":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<instruct>", "<query>", "<response>"]})
    model = tiny_model(kind, len(tokenizer), headless=headless, **changes)
    return prepare(model, tokenizer, attention=attention, head_kind="input" if headless else "lm", device="cpu")


def tiny_lexicon(kind="bert", settings=None, **changes):
    """Return a lexicon model of 20 clusters on a tiny model."""
    from pellucid.lexicon.clusters import cluster_vocabulary
    from pellucid.lexicon.embedder import LexiconEmbedder

    backbone = backbone_of(kind, **changes)
    return LexiconEmbedder(backbone, cluster_vocabulary(backbone.head, backbone.tokenizer, 20), settings)


def saved_backbone(backbone, folder):
    """Write the model and the tokenizer of a backbone; return their folder."""
    backbone.model.save_pretrained(folder)
    backbone.tokenizer.save_pretrained(folder)
    return folder


def states_of(model, text):
    """Return the last hidden states of one text, without padding, and its ids: by transformers alone."""
    import torch

    ids = model.backbone.tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        return model.backbone.model.base_model(**ids).last_hidden_state[0].numpy(), ids["input_ids"][0].tolist()


def tiny_transformer(folder, *, normalize):
    """Return a BERT of one layer and 16 dimensions with random weights, mean-pooled, with prompts."""
    import pytest

    sentence_transformers = pytest.importorskip("sentence_transformers")
    import torch
    from transformers import BertConfig, BertModel

    size = save_word_pieces(folder, "the cat sat on a mat bank loan river query document :".split())
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=size, max_position_embeddings=32, **sizes)).save_pretrained(folder)
    modules = sentence_transformers.sentence_transformer.modules
    parts = [modules.Transformer(str(folder)), modules.Pooling(16)] + [modules.Normalize()] * normalize
    prompts = {"query": "query: ", "document": "document: "}
    return sentence_transformers.SentenceTransformer(modules=parts, prompts=prompts, device="cpu")


def tiny_sparse_encoder(folder, kind="SparseEncoder"):
    """Return a SPLADE, or a model of another class of sentence-transformers, of two layers with random weights."""
    import sentence_transformers

    tokenizer = word_piece()
    tiny_model("bert", len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return getattr(sentence_transformers, kind)(str(folder), device="cpu")

"""How the bundled models, and the models that the papers' tables compare, are made."""

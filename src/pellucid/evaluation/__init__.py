"""How good a model is: MTEB on local data or the hub's, and how well translations are found."""

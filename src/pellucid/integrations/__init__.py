"""Adapters to other libraries, a module each, which imports its library: LangChain, scikit-learn and MCP."""

"""The server: web pages to translate with and to inspect models, and the HTTP API behind them."""

"""Orders: divisions of a graph whose branches can wait."""

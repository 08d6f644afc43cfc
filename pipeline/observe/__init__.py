"""Views of a running pipeline from outside: metrics, traces, timelines, a page."""

"""JSON to tables, pictures and a page. Never measures."""

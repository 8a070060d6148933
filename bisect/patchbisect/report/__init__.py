"""Renders records and journals: text here, pages and pictures beside it."""

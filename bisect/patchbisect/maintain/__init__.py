"""The queue kept in order: lint, edits with undo, another pin, review, import and export."""

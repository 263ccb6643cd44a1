"""The four stages; each reads a conversation and gives back another with the edits that made it."""

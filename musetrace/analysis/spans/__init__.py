"""From a run to arrays of spans: scopes, axes, rows of answers."""

"""What an agent can do with its workspaces: one tool a file."""

"""The policy that a command uses: found, read, validated and compiled."""

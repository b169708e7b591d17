"""`roost mcp`: the operations as tools of the Model Context Protocol."""

"""What lies on the host's disks, and how it goes without anything being lost that somebody still wants."""

"""Reading documents that need a library: PDF, HTML and programs, each in a process of its own."""

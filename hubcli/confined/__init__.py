"""Repository code in another process with fewer rights: bubblewrap, Landlock with seccomp, or best effort."""

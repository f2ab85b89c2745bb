"""The only places that reach outside: `git` starts git, `http` opens sockets; downloads that stop and resume."""

"""The floor of hub, which every folder uses and which uses none of them: settings, paths, specs, output."""

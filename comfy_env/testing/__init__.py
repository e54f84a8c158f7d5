"""What comfy_env ships for those who test backends and node packs: fakes, a clock to move, the contract as a test class."""

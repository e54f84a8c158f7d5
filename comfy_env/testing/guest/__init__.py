"""A folder of modules that the contract's tests run inside workers; it is an import root, not a package of the host."""

"""The host side inside ComfyUI: packs register, their nodes run in their own environments, the workflow cannot tell."""

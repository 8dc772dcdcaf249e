def main() -> None:
    """Placeholder while the skeleton is laid."""

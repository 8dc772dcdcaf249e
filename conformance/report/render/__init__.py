"""The faces of a report: HTML, terminal, Markdown, JUnit, badge, upstream's folder, two reports side by side."""

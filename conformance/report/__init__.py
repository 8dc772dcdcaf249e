"""The report: `report.json` is canonical, all else is rendered from it.

model        the document, and its JSON Schema            evidence   every judged episode, one line each
build        a run's outcome becomes the document         redaction  secrets out, before anything is kept
canonical    the bytes that are hashed; strict reading    verify     check it all again, offline
failures     what needs a reader's attention, and where   transcript one exchange in words
html, text, markdown, junit, badge                        faces, for people and for machines
diff, submission                                          two reports side by side; upstream's folder
"""

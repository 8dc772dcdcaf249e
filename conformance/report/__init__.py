"""The report: `report.json` is canonical, all else is rendered from it.

document/  the document, and how a run's outcome becomes it
render/    its faces, for people and for machines
verify/    check it again, offline
"""

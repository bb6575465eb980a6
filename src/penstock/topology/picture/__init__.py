"""Pictures of a topology.

    graph.py    what a picture shows: topics, nodes, stores, and the edges between them
    layers.py   places shapes in layers: few crossings, no overlaps
    layout.py   the positions of all shapes and edges
    svg.py      the picture as SVG, and as PNG
    mermaid.py  the graph as Mermaid text
    dot.py      the graph as Graphviz text
"""

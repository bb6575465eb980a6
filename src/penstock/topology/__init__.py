"""What will run: plan nodes, naming, rules, lowering, sub-topologies, the description."""

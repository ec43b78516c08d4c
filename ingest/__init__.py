"""From the agents' files to events: finding sources, noticing change, one importer module for each agent."""

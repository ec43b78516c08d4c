-- Events that may be about a session without lying in its stream: its history is read from these and its stream.
CREATE INDEX events_around ON events (owner, position) WHERE type IN (
    'source_detected', 'source_vanished', 'source_moved', 'source_rejected', 'project_identified', 'body_erased'
);

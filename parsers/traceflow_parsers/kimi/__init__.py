"""The two programs of Kimi: Kimi Code (`code`, Node) and kimi-cli (`cli`, Python), which share a journal."""

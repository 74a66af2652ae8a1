//! Text becomes a stream of tokens: tokeniser, templates, sampling, lanes.

//! adit against files that strangers made: vocabularies with their expected token ids, and chat templates.
//! They are fetched once from PyPI; without a network these tests say that they were skipped.

mod fetch;
mod templates;
mod vocabularies;

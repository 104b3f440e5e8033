//! The tests are the consumer.

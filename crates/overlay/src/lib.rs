//! The tree that joins the nodes of a dvm: its shape, and the links that carry its messages.
//!
//! - [`shape`]: the arithmetic of the tree.
//! - [`node`]: one process of the tree. It joins, accepts children, routes messages, and notices losses. Its parts are
//!   [`secure`], a connection that both ends authenticate, and [`lanes`], the streams of messages that survive it.
//! - [`link`]: the link between two roles in one process.
//! - [`wire`]: the frames between a front and its controller.
//!
//! **Architecture invariant:** the overlay does not know what it carries. The caller knows what a message means, and how
//! two replies are merged.

pub mod lanes;
pub mod link;
pub mod node;
mod packet;
pub mod planted;
pub mod secure;
pub mod shape;
pub mod wire;

pub use link::{Full, InProcess, Lane};
pub use packet::{Address, BODY_MAX, Loss, Refusal};
pub use shape::{DEFAULT_RADIX, Hop, Position, Shape, Span};

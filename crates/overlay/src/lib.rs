//! The tree that joins the nodes of a dvm: its shape, and the links that its messages travel on.
//!
//! Today there is [`shape`], the arithmetic of the tree, [`link`], the link between two roles in one process, and
//! [`wire`], the frames of a link between processes.
//! Links between hosts, casts, gathers and the loss of a link come with the tree's own issue, and take the same
//! [`link::Full`] for an answer.
//!
//! **Architecture invariant:** the overlay does not know what it carries. What a message is, and how two replies
//! become one, is the caller's.

pub mod link;
pub mod shape;
pub mod wire;

pub use link::{Full, InProcess, Lane};
pub use shape::{DEFAULT_RADIX, Hop, Position, Shape, Span};

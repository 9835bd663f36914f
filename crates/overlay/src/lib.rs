//! The tree that joins the nodes of a dvm: its shape, and the links that carry its messages.
//!
//! Today there are [`shape`], the arithmetic of the tree; [`link`], the link between two roles in one process; and
//! [`wire`], the frames of a link between processes. Links between nodes, casts, gathers and the loss of a link are not
//! implemented yet. They will return the same [`link::Full`].
//!
//! **Architecture invariant:** the overlay does not know what it carries. The caller knows what a message means, and how
//! two replies are merged.

pub mod link;
pub mod shape;
pub mod wire;

pub use link::{Full, InProcess, Lane};
pub use shape::{DEFAULT_RADIX, Hop, Position, Shape, Span};

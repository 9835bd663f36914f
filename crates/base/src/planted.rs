//! The switch of planted bugs: plausible bugs that a test switches on to prove that the simulator finds them.

/// Makes the switch of a crate for its enum of planted bugs: `is`, for the places of the bugs, and `switched::with`, for tests.
///
/// The feature `planted` of the calling crate is not part of any release. Without it, `is` is the constant `false`, and no bug is
/// compiled in.
#[macro_export]
macro_rules! planted_switch {
    ($bug:ident) => {
        #[cfg(feature = "planted")]
        mod switched {
            use super::$bug;

            ::std::thread_local! {
                static ON: ::std::cell::Cell<Option<$bug>> = const { ::std::cell::Cell::new(None) };
            }

            /// Runs `act` on this thread with one bug switched on.
            pub fn with<T>(bug: $bug, act: impl FnOnce() -> T) -> T {
                /// Restores the previous bug, also when a test panics.
                struct Before(Option<$bug>);

                impl Drop for Before {
                    fn drop(&mut self) {
                        ON.set(self.0);
                    }
                }

                let _before = Before(ON.replace(Some(bug)));
                act()
            }

            /// Returns true if a bug is switched on.
            pub(crate) fn is(bug: $bug) -> bool {
                ON.get() == Some(bug)
            }
        }

        #[cfg(feature = "planted")]
        pub(crate) use switched::is;

        /// Returns `false`: no bug is switched on.
        #[cfg(not(feature = "planted"))]
        #[inline(always)]
        pub(crate) const fn is(_: $bug) -> bool {
            false
        }
    };
}

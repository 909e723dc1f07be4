//! The worker: takes orders, keeps their claims alive, executes, and reports until receipted.

//! Clients, with a coordinator in the same process and a clock that is only moved while all wait.

mod balance;
mod layer;
mod lender;
mod limits;
mod settings;

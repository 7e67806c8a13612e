//! The public form of the module: a [`Balancer`] whose connections are the application's, and pickers with names of clusters.

mod attempt;
mod balancer;
mod command;
mod connect_requests;
mod pick;
mod pick_request;
mod picker;
mod settings;

pub use self::{
    attempt::{Attempt, InvalidLoadReport},
    balancer::Balancer,
    command::{Command, ConnectTarget},
    pick::{Pick, PickError},
    pick_request::PickRequest,
    picker::Picker,
    settings::Settings,
};

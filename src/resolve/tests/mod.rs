mod aggregates;
mod hosts;
mod on_demand;
mod plugins;
mod rig;
mod rules;
mod scale;
mod scopes;

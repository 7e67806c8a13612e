mod aggregates;
mod hosts;
mod plugins;
mod rig;
mod rules;
mod scale;

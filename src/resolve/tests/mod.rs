mod aggregates;
mod hosts;
mod rig;
mod rules;
mod scale;

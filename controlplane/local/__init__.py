"""Run the product on one machine: process supervisor and demo pipeline."""

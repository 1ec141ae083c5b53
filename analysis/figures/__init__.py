"""Figures as data: declared ones, and the tables that they show."""

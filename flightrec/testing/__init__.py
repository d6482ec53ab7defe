"""What tests of this project and of plug-ins use: contracts, and incidents made by hand."""

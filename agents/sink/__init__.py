"""Write records: whole batches and record by record."""

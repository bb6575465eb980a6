"""Files that earlier versions have written: the current version reads them and continues."""

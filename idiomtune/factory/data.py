"""Where each data set is; the name under which packages of users' own import these functions."""

from idiomtune.data.places import (
    admire_folder,
    admire_split,
    data_files,
    folder_of,
    idiolink_folder,
    idiolink_split,
)

__all__ = ["admire_folder", "admire_split", "data_files", "folder_of", "idiolink_folder", "idiolink_split"]

"""Images and recordings as files: listed with their labels, and read as arrays.

A record names an item: a file, number 17 of a file of many (`images.npz#17`), something drawn by
`drawn` (`drawn:circle-17`), or the content itself (`data:image/png;base64,...`), as a page sends
it.
"""

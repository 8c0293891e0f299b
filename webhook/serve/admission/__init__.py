"""The data path: an AdmissionReview, its decision, its response."""

"""What is to be run: recipes, the targets they hold for, the arguments they give.

Here is what a recipe means, and whether it can be; nothing is made or started."""
